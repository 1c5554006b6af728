/* `plan --json`: the fields that scripts use. Fields are only ever added; bytes are exact. */
#include <string.h>

#include "cli/plan.h"
#include "cli/text.h"

enum { LIVE_ENTRIES = 32 };

static void write_model(json_writer *json, const hr_model *model, uint64_t parameters, uint64_t trainable) {
  json_write_open(json, "model", '{');
  json_write_text(json, "family", hr_family_name(model->family));
  json_write_text(json, "name", model->name);
  json_write_count(json, "parameter_count", parameters);
  json_write_count(json, "trainable_parameter_count", trainable);
  json_write_count(json, "layer_count", model->layer_count);
  json_write_count(json, "hidden_size", model->hidden_size);
  json_write_count(json, "head_count", model->head_count);
  json_write_count(json, "kv_head_count", model->kv_head_count);
  json_write_count(json, "head_size", model->head_size);
  json_write_count(json, "mlp_size", model->mlp_size);
  json_write_count(json, "vocabulary_size", model->vocabulary_size);
  json_write_count(json, "max_positions", model->max_positions);
  json_write_bool(json, "tied_embeddings", model->tied_embeddings);
  json_write_bool(json, "has_weights", model->has_weights);
  if (model->unread_keys[0]) json_write_text(json, "unread_keys", model->unread_keys);
  json_write_close(json, '}');
}

static void write_option(json_writer *json, const cli_config *config, option_id id) {
  const hr_field *o = option_get(id);
  char key[64], text[OPTION_VALUE_BYTES];
  hr_value v;
  (void)snprintf(key, sizeof key, "%s", o->name);
  for (char *c = key; *c; c++)
    if (*c == '-') *c = '_';
  if (config->settings[id].origin == ORIGIN_UNSET) {
    json_write_null(json, key);
    return;
  }
  config_value(config, id, &v);
  if (o->kind == HR_FIELD_FLAG && o->zero && !config_option_chosen(config, id)) {
    json_write_null(json, key); /* what it stands for shows where the data are */
  } else if (o->kind == HR_FIELD_FLAG) {
    json_write_bool(json, key, v.flag);
  } else if ((o->kind == HR_FIELD_U32 || o->kind == HR_FIELD_U64) && !hr_field_says_word(o, &v)) {
    json_write_count(json, key, v.count);
  } else if ((o->kind == HR_FIELD_NUMBER || o->kind == HR_FIELD_SHARE) && !hr_field_says_word(o, &v)) {
    json_write_number(json, key, v.number[0]);
  } else if (o->kind == HR_FIELD_PAIR) {
    json_write_open_flat(json, key, '[');
    json_write_number(json, NULL, v.number[0]);
    json_write_number(json, NULL, v.number[1]);
    json_write_close(json, ']');
  } else {
    json_write_text(json, key, config_value_text(config, id, text));
  }
}

/* Every option that describes the job, whatever command the plan was made by. */
static void write_job(json_writer *json, const cli_config *config, hr_purpose purpose) {
  json_write_open(json, "job", '{');
  json_write_text(json, "command", option_get(option_at(config, &config->own.purpose))->words[purpose]);
  for (option_id id = 0; id < option_count(); id++) {
    const hr_field *o = option_get(id);
    if (o->commands & HR_FOR_PLAN && strcmp(o->group, "Plan") != 0 && strcmp(o->group, "General") != 0)
      write_option(json, config, id);
  }
  json_write_close(json, '}');
}

static void write_roles(json_writer *json, const char *key, const uint64_t *bytes) {
  json_write_open(json, key, '{');
  for (uint32_t role = 0; role < HR_ROLE_COUNT; role++) json_write_count(json, hr_role_name(role), bytes[role]);
  json_write_close(json, '}');
}

static void write_live(json_writer *json, const hr_plan *plan, uint32_t tier) {
  hr_live live;
  json_write_open(json, "live", '[');
  for (uint32_t i = 0; i < LIVE_ENTRIES && hr_plan_live(plan, tier, i, &live); i++) {
    json_write_open(json, NULL, '{');
    json_write_text(json, "name", live.name);
    json_write_text(json, "role", hr_role_name(live.role));
    json_write_text(json, "dtype", live.dtype);
    json_write_open_flat(json, "shape", '[');
    for (uint32_t k = 0; k < live.rank && k < 5; k++) json_write_count(json, NULL, live.dims[k]);
    json_write_close(json, ']');
    json_write_count(json, "bytes", live.bytes);
    if (live.layer >= 0) json_write_integer(json, "layer", live.layer);
    else json_write_null(json, "layer");
    if (hr_plan_live_holds(plan, tier, i, 0)) {
      json_write_open(json, "holds", '[');
      for (uint32_t k = 0; hr_plan_live_holds(plan, tier, i, k); k++)
        json_write_text(json, NULL, hr_plan_live_holds(plan, tier, i, k));
      json_write_close(json, ']');
    }
    json_write_close(json, '}');
  }
  json_write_close(json, ']');
}

static void write_tier(json_writer *json, const hr_plan *plan, uint32_t index) {
  const hr_tier_plan *tier = &hr_plan_get(plan)->tiers[index];
  json_write_open(json, hr_tier_name(index), '{');
  json_write_count(json, "reserved_bytes", tier->reserved_bytes);
  json_write_count(json, "fixed_bytes", tier->fixed_bytes);
  json_write_bool(json, "fixed_measured", tier->fixed_measured);
  json_write_bool(json, "scratch_exact", hr_plan_get(plan)->scratch_exact);
  json_write_count(json, "peak_bytes", tier->peak_bytes);
  json_write_count(json, "lower_bound_bytes", tier->lower_bound_bytes);
  write_roles(json, "at_peak_by_role", tier->at_peak_by_role);
  write_roles(json, "max_by_role", tier->max_by_role);
  json_write_open(json, "peak_by_phase", '{');
  for (uint32_t phase = 0; phase < HR_PHASE_COUNT; phase++)
    json_write_count(json, hr_phase_name(phase), tier->peak_by_phase[phase]);
  json_write_close(json, '}');
  json_write_open(json, "peak", '{');
  if (tier->reserved_bytes) {
    json_write_text(json, "program", tier->peak_program);
    json_write_text(json, "phase", hr_phase_name(tier->peak_phase));
    json_write_text(json, "node", tier->peak_node);
    if (tier->peak_layer >= 0) json_write_integer(json, "layer", tier->peak_layer);
    else json_write_null(json, "layer");
  }
  json_write_count(json, "live_count", tier->live_count);
  write_live(json, plan, index);
  json_write_close(json, '}');
  json_write_close(json, '}');
}

static void write_products(json_writer *json, const hr_products *products) {
  static const char *const origins[] = {"none", "shipped", "measured", "given"};
  if (products->origin == HR_PRODUCTS_NONE) return;
  json_write_open(json, "products", '{');
  json_write_text(json, "text", products->text);
  json_write_text(json, "origin", origins[products->origin]);
  if (products->digest[0]) json_write_text(json, "digest", products->digest);
  if (products->problem[0]) json_write_text(json, "problem", products->problem);
  json_write_close(json, '}');
}

static void write_time(json_writer *json, const hr_plan_info *info, const hr_device *device) {
  json_write_open(json, "time", '{');
  json_write_ns(json, "step_ns", info->step_seconds);
  json_write_open(json, "by_lane", '{');
  for (uint32_t lane = 0; lane < HR_LANE_COUNT; lane++)
    json_write_ns(json, hr_lane_name(lane), info->lane_seconds[lane]);
  json_write_close(json, '}');
  json_write_open(json, "by_phase", '{');
  for (uint32_t phase = 0; phase < HR_PHASE_COUNT; phase++)
    json_write_ns(json, hr_phase_name(phase), info->phase_seconds[phase]);
  json_write_close(json, '}');
  json_write_number(json, "flops_per_step", info->flops_per_step);
  json_write_count(json, "tokens_per_step", info->tokens_per_step);
  json_write_bool(json, "measured", info->time_measured);
  json_write_bool(json, "seen", info->time_seen);
  if (info->time_seen) json_write_number(json, "seen_share", info->time_seen_share);
  if (device->rates_problem[0]) json_write_text(json, "rates_problem", device->rates_problem);
  json_write_close(json, '}');
}

static void write_fixes(json_writer *json, const fix_list *list) {
  json_write_open(json, "fixes", '[');
  for (uint32_t i = 0; list && i < list->count; i++) {
    const hr_fix *fix = &list->fixes[i];
    json_write_open(json, NULL, '{');
    json_write_text(json, "options", fix->options);
    json_write_bool(json, "fits", fix->fits);
    json_write_bool(json, "changes_algorithm", fix->changes_algorithm);
    json_write_text(json, "effect", hr_effect_name((hr_effect)fix->effect_class));
    json_write_count(json, "effect_class", fix->effect_class);
    json_write_count(json, "peak_bytes", fix->need_bytes); /* the contract's name for what a budget must hold */
    json_write_count(json, "need_bytes", fix->need_bytes);
    json_write_ns(json, "step_ns", fix->step_seconds);
    json_write_number(json, "token_ns", 1e9 * fix->token_seconds);
    json_write_close(json, '}');
  }
  json_write_close(json, ']');
}

/* Where the job fits as it is; empty where that was not asked. */
static void write_devices(json_writer *json, const hr_plan *plan, const device_list *list) {
  json_write_open(json, "larger_devices", '[');
  for (uint32_t i = 0; list && i < list->count; i++) {
    const device_fit *d = &list->fits[i];
    char options[OPTION_VALUE_BYTES];
    json_write_open(json, NULL, '{');
    json_write_text(json, "name", d->name);
    device_fit_options(hr_plan_job(plan), list, i, options, sizeof options);
    json_write_text(json, "options", options);
    json_write_count(json, "usable_bytes", d->usable_bytes);
    json_write_count(json, "need_bytes", d->need_bytes);
    json_write_ns(json, "step_ns", d->step_seconds);
    json_write_number(json, "token_ns", 1e9 * d->token_seconds);
    json_write_close(json, '}');
  }
  json_write_close(json, ']');
}

static void write_frontier(json_writer *json, const hr_plan *plan, const hr_frontier *frontier) {
  char options[OPTION_VALUE_BYTES] = "--recompute ";
  const size_t word = strlen(options);
  json_write_open(json, "frontier", '[');
  for (uint32_t i = 0; frontier && i < frontier->count; i++) {
    const hr_frontier_point *point = &frontier->points[i];
    (void)hr_recompute_text(&point->recompute, hr_plan_job(plan)->model.layer_count, options + word,
                            sizeof options - word);
    json_write_open(json, NULL, '{');
    json_write_text(json, "options", options);
    json_write_bool(json, "fits", point->fits);
    json_write_bool(json, "chosen", point->chosen);
    json_write_count(json, "peak_bytes", point->need_bytes); /* as in fixes: what a budget must hold */
    json_write_count(json, "need_bytes", point->need_bytes);
    json_write_ns(json, "step_ns", point->step_seconds);
    json_write_close(json, '}');
  }
  json_write_close(json, ']');
}

/* What --auto found, and what nothing could beat (headroom/plan.h). Without the option there is no such member. */
static void write_auto(json_writer *json, const hr_auto *found) {
  if (!found || found->bound_token_seconds <= 0) return;
  json_write_open(json, "auto", '{');
  json_write_bool(json, "found", found->token_seconds > 0);
  if (found->token_seconds > 0) {
    json_write_number(json, "token_ns", 1e9 * found->token_seconds);
    json_write_number(json, "fastest_token_ns", 1e9 * found->fastest_token_seconds);
    json_write_number(json, "gap", found->token_seconds / found->bound_token_seconds - 1);
  } else {
    json_write_count(json, "smallest_bytes", found->smallest_bytes);
  }
  json_write_number(json, "bound_token_ns", 1e9 * found->bound_token_seconds);
  json_write_count(json, "bound_bytes", found->bound_bytes);
  json_write_close(json, '}');
}

/* The team of a job on this machine, and what decides the default. */
static void write_team(json_writer *json, const hr_job *job) {
  hr_cpu_team usual;
  if (!job->device.has_team || !job->device.usable_now) return;
  hr_device_cpu_team(&usual);
  json_write_open(json, "team", '{');
  json_write_count(json, "threads", job->threads);
  json_write_count(json, "default_threads", usual.threads);
  json_write_count(json, "processors", usual.processors);
  json_write_count(json, "cores", usual.cores);
  if (usual.quota_cpus > 0) json_write_number(json, "quota_cpus", usual.quota_cpus);
  else json_write_null(json, "quota_cpus");
  json_write_close(json, '}');
}

void plan_write_subject(json_writer *json, const cli_config *config, const hr_job *job, uint64_t parameters,
                        uint64_t trainable) {
  write_model(json, &job->model, parameters, trainable);
  write_job(json, config, job->purpose);
  json_write_open(json, "device", '{');
  json_write_text(json, "name", job->device.name);
  json_write_count(json, "capacity_bytes", job->device.capacity_bytes);
  json_write_count(json, "usable_bytes", job->device.usable_bytes);
  write_team(json, job);
  json_write_close(json, '}');
}

void plan_write_json(json_writer *json, const cli_config *config, const hr_plan *plan, const fix_list *list,
                     const device_list *devices, const hr_frontier *frontier, const hr_auto *found) {
  const hr_plan_info *info = hr_plan_get(plan);
  char warning[PLAN_WARNING_BYTES];
  json_write_bool(json, "fits", info->fits);
  json_write_count(json, "need_bytes", plan_need(plan));
  plan_write_subject(json, config, hr_plan_job(plan), info->parameter_count, info->trainable_parameter_count);
  json_write_count(json, "budget_bytes", info->budget_bytes);
  json_write_open(json, "warnings", '[');
  if (plan_not_offered(hr_plan_job(plan), warning, sizeof warning)) json_write_text(json, NULL, warning);
  if (hr_job_beyond_positions(hr_plan_job(plan), warning, sizeof warning)) json_write_text(json, NULL, warning);
  json_write_close(json, ']');
  json_write_open(json, "tiers", '{');
  for (uint32_t tier = 0; tier < HR_TIER_COUNT; tier++) write_tier(json, plan, tier);
  json_write_close(json, '}');
  write_products(json, &info->products);
  write_time(json, info, &hr_plan_job(plan)->device);
  write_fixes(json, list);
  write_devices(json, plan, devices);
  write_frontier(json, plan, frontier);
  write_auto(json, found);
  json_write_open(json, "plan", '{');
  json_write_count(json, "program_count", info->program_count);
  json_write_count(json, "node_count", info->node_count);
  json_write_count(json, "storage_count", info->storage_count);
  json_write_count(json, "plan_bytes", info->plan_bytes);
  json_write_ns(json, "plan_ns", info->plan_seconds);
  json_write_close(json, '}');
}
