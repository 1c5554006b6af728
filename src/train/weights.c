#include "train/weights.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "ops/cpu.h"
#include "ops/move/random.h"

/* ---- finding tensors ---- */

static uint32_t find_part(const hri_source *s, const hri_param_part *part) {
  char name[128];
  for (uint32_t v = 0; hri_param_variant(s->model, part->name, v, name); v++) {
    uint32_t index = hri_weights_find(s->weights, name);
    if (index != HRI_SAFETENSORS_NONE) return index;
  }
  return HRI_SAFETENSORS_NONE;
}

static bool is_float(hri_file_dtype d) { return d == HRI_FILE_F32 || d == HRI_FILE_BF16 || d == HRI_FILE_F16; }

/* Logical shape of a part in its file. */
static uint32_t part_shape(const hri_param_spec *spec, const hri_param_part *part, uint64_t shape[2]) {
  if (spec->rank == 1) {
    shape[0] = part->rows;
    return 1;
  }
  shape[part->transposed ? 1 : 0] = part->rows;
  shape[part->transposed ? 0 : 1] = spec->dims[1];
  return 2;
}

static hr_status check_part(hri_source *s, const hri_param_spec *spec, const hri_param_part *part, bool *seen, hr_error *error) {
  uint32_t index = find_part(s, part), rank;
  uint64_t shape[2] = {0, 0};
  const hri_safetensor *t;
  hr_status status;
  if (index == HRI_SAFETENSORS_NONE) {
    const char *file = hri_weights_count(s->weights) ? hri_weights_path(s->weights, 0) : s->model->directory;
    status = hri_fail(error, HR_ERROR_INPUT, "%s: the tensor %s is missing", file, part->name);
    return hri_hint(error, status, "the weights do not belong to this config.json, or a shard is missing");
  }
  t = hri_weights_get(s->weights, index);
  seen[index] = true;
  rank = part_shape(spec, part, shape);
  if (!is_float(t->dtype)) {
    status = hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s has dtype %s", hri_weights_path(s->weights, index), t->name, hri_file_dtype_name(t->dtype));
    return hri_hint(error, status, "F32, BF16 and F16 weights can be loaded");
  }
  if (t->rank != rank || t->shape[0] != shape[0] || (rank == 2 && t->shape[1] != shape[1])) {
    status = hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s has shape [%llu%s%llu] and config.json asks for [%llu%s%llu]", hri_weights_path(s->weights, index), t->name,
                      (unsigned long long)(t->rank > 0 ? t->shape[0] : 0), t->rank > 1 ? ", " : "/", (unsigned long long)(t->rank > 1 ? t->shape[1] : 1),
                      (unsigned long long)shape[0], rank > 1 ? ", " : "/", (unsigned long long)(rank > 1 ? shape[1] : 1));
    return hri_hint(error, status, "check that config.json and the weights come from the same model");
  }
  if (spec->slot == HRI_SLOT_TOKEN_EMBEDDING) s->dtype = t->dtype;
  return HR_OK;
}

static hr_status check_weights(hri_source *s, hr_error *error) {
  uint32_t count = hri_weights_count(s->weights);
  bool *seen = hri_alloc_zero(count + 1, sizeof *seen);
  hr_status status = HR_OK;
  if (!seen) return hri_fail_memory(error, count, "the weight check");
  for (uint32_t p = 0; p < hri_param_count(s->model); p++) {
    hri_param_spec spec;
    hri_param_get(s->model, p, &spec);
    for (uint32_t k = 0; k < spec.part_count; k++) HRI_TRY_OUT(check_part(s, &spec, &spec.parts[k], seen, error));
  }
  for (uint32_t i = 0; i < count; i++) {
    const hri_safetensor *t = hri_weights_get(s->weights, i);
    if (seen[i] || hri_param_ignored(s->model, t->name)) continue;
    status = hri_fail(error, HR_ERROR_INPUT, "%s: the tensor %s does not belong to a %s model of this config.json", hri_weights_path(s->weights, i), t->name, hr_family_name(s->model->family));
    hri_hint(error, status, "remove it, or check model_type, num_hidden_layers and the bias fields in config.json");
    goto out;
  }
out:
  hri_free(seen);
  return status;
}

hr_status hri_source_open(hri_source *s, const hr_model *model, const hri_job *job, const hri_cpu *cpu, const char *directory,
                          const char *states_file, uint64_t seed, hr_error *error) {
  hr_status status = HR_OK;
  memset(s, 0, sizeof *s);
  s->model = model;
  s->job = job;
  s->cpu = cpu;
  s->seed = seed;
  s->dtype = HRI_FILE_F32;
  if (!directory) directory = model->directory[0] ? model->directory : NULL;
  if (directory) HRI_TRY_OUT(hri_weights_open(directory, &s->weights, error));
  if (s->weights) HRI_TRY_OUT(check_weights(s, error));
  if (states_file) HRI_TRY_OUT(hri_weights_open(states_file, &s->states, error));
out:
  if (status != HR_OK) hri_source_close(s);
  return status;
}

void hri_source_close(hri_source *s) {
  hri_weights_close(s->weights);
  hri_weights_close(s->states);
  memset(s, 0, sizeof *s);
}

/* ---- values of a tensor in the arena, fp32 or bf16 ---- */

typedef struct values {
  void *base;
  hri_real real;
} values;

static values values_of(const hri_job *job, uint32_t param, hri_part_kind kind, void *tensor) {
  const hri_param *p = &job->params.items[param];
  hri_id id = kind != HRI_PART_WEIGHT ? p->state[kind - HRI_PART_STATE0] : p->master != HRI_NONE ? p->master : p->weight;
  return (values){tensor, job->tensors.items[id].dtype == HRI_BF16 ? HRI_REAL_BF16 : HRI_REAL_F32};
}

static values from(values v, uint64_t index) { return (values){hri_real_at(v.base, (int64_t)index, v.real), v.real}; }

static void put(values to, const float *list, uint64_t count) {
  if (to.real == HRI_REAL_BF16) hri_bf16_from_f32(to.base, list, count);
  else memcpy(to.base, list, count * sizeof *list);
}

static float value_at(values v, uint64_t index) { return v.real == HRI_REAL_BF16 ? hri_bf16_widen(((const hri_bf16 *)v.base)[index]) : ((const float *)v.base)[index]; }

static void set_at(values v, uint64_t index, float x) {
  if (v.real == HRI_REAL_BF16) ((hri_bf16 *)v.base)[index] = hri_bf16_round(x);
  else ((float *)v.base)[index] = x;
}

static bool same_type(values v, hri_file_dtype dtype) { return dtype == (v.real == HRI_REAL_BF16 ? HRI_FILE_BF16 : HRI_FILE_F32); }

/* The staging as a list of fp32 values and, behind it, one of file elements (the same list when files hold fp32). */
typedef struct staging_lists {
  float *list;
  void *raw;
  uint64_t room; /* elements */
} staging_lists;

static staging_lists staging_split(hri_file_dtype dtype, void *staging, uint64_t bytes) {
  uint64_t each = hri_file_dtype_bits(dtype) / 8;
  staging_lists l = {.list = staging, .raw = staging, .room = bytes / (dtype == HRI_FILE_F32 ? 4 : 4 + each)};
  if (dtype != HRI_FILE_F32) l.raw = l.list + l.room;
  return l;
}

/* ---- reading ---- */

static hr_status read_list(hri_weights *w, uint32_t index, uint64_t first, uint64_t count, const staging_lists *l, hr_error *error) {
  hri_file_dtype dtype = hri_weights_get(w, index)->dtype;
  uint64_t each = hri_file_dtype_bits(dtype) / 8;
  HRI_TRY(hri_weights_read(w, index, first * each, count * each, l->raw, error));
  if (dtype != HRI_FILE_F32) (void)hri_file_to_f32(dtype, l->list, l->raw, count);
  return HR_OK;
}

/* The first `count` elements of a file tensor, straight to `to` where the types agree, else through the staging. */
static hr_status read_run(hri_weights *w, uint32_t index, uint64_t count, values to, void *staging, uint64_t staging_bytes, hr_error *error) {
  hri_file_dtype dtype = hri_weights_get(w, index)->dtype;
  staging_lists l = staging_split(dtype, staging, staging_bytes);
  if (same_type(to, dtype)) return hri_weights_read(w, index, 0, count * hri_real_bytes(to.real), to.base, error);
  for (uint64_t done = 0; done < count; done += l.room) {
    uint64_t n = count - done < l.room ? count - done : l.room;
    HRI_TRY(read_list(w, index, done, n, &l, error));
    put(from(to, done), l.list, n);
  }
  return HR_OK;
}

/* A transposed part: the file holds [columns, rows]; it is read as one run of elements and scattered. */
static hr_status read_transposed(hri_weights *w, uint32_t index, const hri_param_part *part, uint64_t columns, values to, void *staging, uint64_t staging_bytes, hr_error *error) {
  staging_lists l = staging_split(hri_weights_get(w, index)->dtype, staging, staging_bytes);
  uint64_t row = 0, column = 0;
  for (uint64_t at = 0; at < columns * part->rows;) {
    uint64_t n = columns * part->rows - at < l.room ? columns * part->rows - at : l.room;
    HRI_TRY(read_list(w, index, at, n, &l, error));
    for (uint64_t k = 0; k < n; k++) {
      set_at(to, (part->row + row) * columns + column, l.list[k]);
      if (++row == part->rows) {
        row = 0;
        column++;
      }
    }
    at += n;
  }
  return HR_OK;
}

static hr_status check_finite(const hri_source *s, values v, uint64_t count, const char *file, const char *name, hr_error *error) {
  int64_t bad = hri_cpu_table(s->cpu)->first_nonfinite(v.base, (int64_t)count, v.real, (int)hri_cpu_threads(s->cpu));
  hr_status status;
  if (bad < 0) return HR_OK;
  status = hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s holds a value that is not finite at element %lld", file, name, (long long)bad);
  return hri_hint(error, status, "the checkpoint is damaged or its training diverged; use an earlier one");
}

static hr_status fill_weight(hri_source *s, const hri_param_spec *spec, values to, void *staging, uint64_t staging_bytes, hr_error *error) {
  uint64_t columns = spec->rank == 2 ? spec->dims[1] : 1;
  for (uint32_t k = 0; k < spec->part_count; k++) {
    const hri_param_part *part = &spec->parts[k];
    values rows = from(to, part->row * columns);
    uint32_t index = find_part(s, part);
    if (index == HRI_SAFETENSORS_NONE) return hri_fail(error, HR_ERROR_INPUT, "the tensor %s is missing", part->name);
    if (part->transposed) HRI_TRY(read_transposed(s->weights, index, part, columns, to, staging, staging_bytes, error));
    else HRI_TRY(read_run(s->weights, index, part->rows * columns, rows, staging, staging_bytes, error));
    HRI_TRY(check_finite(s, rows, part->rows * columns, hri_weights_path(s->weights, index), part->name, error));
  }
  return HR_OK;
}

static hr_status fill_state(hri_source *s, const hri_param *param, const hri_param_spec *spec, hri_part_kind kind, values to, void *staging, uint64_t staging_bytes, hr_error *error) {
  char name[128];
  uint32_t index;
  uint64_t elements = spec->dims[0] * (spec->rank == 2 ? spec->dims[1] : 1), have = 0;
  (void)snprintf(name, sizeof name, "%s.%s", hri_name_get(s->job, param->key), kind == HRI_PART_STATE0 ? "exp_avg" : "exp_avg_sq");
  index = hri_weights_find(s->states, name);
  if (index == HRI_SAFETENSORS_NONE) return hri_fail(error, HR_ERROR_INPUT, "the checkpoint's optimizer.safetensors has no tensor %s", name);
  (void)hri_file_elements(hri_weights_get(s->states, index)->rank, hri_weights_get(s->states, index)->shape, &have);
  if (have != elements || !same_type(to, hri_weights_get(s->states, index)->dtype))
    return hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s has the wrong shape or dtype", hri_weights_path(s->states, index), name);
  return read_run(s->states, index, elements, to, staging, staging_bytes, error);
}

void hri_initialise(const hri_cpu *cpu, const hri_param *param, uint64_t seed, uint64_t elements, hri_real real, void *tensor, void *staging, uint64_t staging_bytes) {
  values to = {tensor, real};
  int team = (int)hri_cpu_threads(cpu);
  float constant = param->init == HRI_INIT_ONES ? 1.0f : 0.0f, *list = to.real == HRI_REAL_F32 ? to.base : staging;
  uint64_t room = to.real == HRI_REAL_F32 ? elements : staging_bytes / sizeof *list;
  for (uint64_t done = 0; done < elements; done += room) {
    uint64_t n = elements - done < room ? elements - done : room;
    if (param->init == HRI_INIT_NORMAL) hri_fill_normal(list, (int64_t)n, param->init_std, seed, param->site, (int64_t)done, team);
    else hri_cpu_table(cpu)->fill(list, constant, (int64_t)n, team);
    if (to.real != HRI_REAL_F32) put(from(to, done), list, n);
  }
}

hr_status hri_source_fill(void *context, uint32_t p, hri_part_kind kind, void *tensor, void *staging, uint64_t staging_bytes, hr_error *error) {
  hri_source *s = context;
  const hri_param *param = &s->job->params.items[p];
  values to = values_of(s->job, p, kind, tensor);
  hri_param_spec spec;
  uint64_t elements;
  hri_param_get(s->model, param->spec, &spec);
  elements = spec.dims[0] * (spec.rank == 2 ? spec.dims[1] : 1);
  if (kind == HRI_PART_WEIGHT && s->weights) HRI_TRY(fill_weight(s, &spec, to, staging, staging_bytes, error));
  else if (kind == HRI_PART_WEIGHT) hri_initialise(s->cpu, param, s->seed, elements, to.real, tensor, staging, staging_bytes);
  else if (s->states) HRI_TRY(fill_state(s, param, &spec, kind, to, staging, staging_bytes, error));
  else hri_cpu_table(s->cpu)->zero(tensor, (int64_t)(elements * hri_real_bytes(to.real)), (int)hri_cpu_threads(s->cpu));
  memset(from(to, elements).base, 0, (param->elements - elements) * hri_real_bytes(to.real)); /* padded vocabulary rows */
  return HR_OK;
}

/* ---- writing ---- */

static hr_status list_tensors(hri_sink *sink, bool with_states, hr_error *error) {
  uint32_t params = (uint32_t)sink->job->params.count, t = 0, st = 0;
  sink->tensors = hri_alloc_zero((size_t)params * HRI_PARAM_PARTS, sizeof *sink->tensors);
  sink->names = hri_alloc_zero((size_t)params * HRI_PARAM_PARTS, sizeof *sink->names);
  sink->first_tensor = hri_alloc_zero((size_t)params + 1, sizeof *sink->first_tensor);
  sink->state_tensors = hri_alloc_zero((size_t)params * 2, sizeof *sink->state_tensors);
  sink->state_names = hri_alloc_zero((size_t)params * 2, sizeof *sink->state_names);
  sink->first_state = hri_alloc_zero((size_t)params + 1, sizeof *sink->first_state);
  if (!sink->tensors || !sink->names || !sink->first_tensor || !sink->state_tensors || !sink->state_names || !sink->first_state)
    return hri_fail_memory(error, (uint64_t)params * 800, "the list of tensors to save");
  for (uint32_t p = 0; p < params; p++) {
    const hri_param *param = &sink->job->params.items[p];
    hri_param_spec spec;
    hri_param_get(sink->model, param->spec, &spec);
    sink->first_tensor[p] = t;
    for (uint32_t k = 0; k < spec.part_count; k++, t++) {
      memcpy(sink->names[t], spec.parts[k].name, sizeof sink->names[t]);
      sink->tensors[t].name = sink->names[t];
      sink->tensors[t].dtype = sink->dtype;
      sink->tensors[t].rank = part_shape(&spec, &spec.parts[k], sink->tensors[t].shape);
    }
    sink->first_state[p] = st;
    for (uint32_t k = 0; with_states && k < 2 && param->state[k] != HRI_NONE; k++, st++) {
      (void)snprintf(sink->state_names[st], sizeof sink->state_names[st], "%s.%s", hri_name_get(sink->job, param->key), k == 0 ? "exp_avg" : "exp_avg_sq");
      sink->state_tensors[st] = (hri_safetensor){.name = sink->state_names[st], .dtype = sink->job->tensors.items[param->state[k]].dtype == HRI_BF16 ? HRI_FILE_BF16 : HRI_FILE_F32, .rank = spec.rank, .shape = {spec.dims[0], spec.dims[1]}};
    }
  }
  sink->first_tensor[params] = t;
  sink->first_state[params] = st;
  return HR_OK;
}

hr_status hri_sink_open(hri_sink *sink, const hr_model *model, const hri_job *job, const char *directory, hri_file_dtype dtype, bool with_states, hr_error *error) {
  static const uint64_t shard_bytes = 5000000000u; /* decimal, as huggingface_hub */
  hr_status status = HR_OK;
  uint32_t params = (uint32_t)job->params.count;
  memset(sink, 0, sizeof *sink);
  sink->model = model;
  sink->job = job;
  sink->dtype = dtype;
  HRI_TRY_OUT(list_tensors(sink, with_states, error));
  HRI_TRY_OUT(hri_weights_writer_open(directory, sink->tensors, sink->first_tensor[params], shard_bytes, &sink->weights, error));
  if (sink->first_state[params] > 0) {
    char *path = hri_path_join(directory, "optimizer.safetensors");
    status = path ? hri_safetensors_writer_open(path, sink->state_tensors, sink->first_state[params], NULL, 0, &sink->states, error) : hri_fail_memory(error, 0, "a path");
    hri_free(path);
  }
out:
  if (status != HR_OK) hri_sink_abort(sink);
  return status;
}

/* The first `count` values as elements of the file, straight where the types agree. */
static hr_status write_run(hri_sink *sink, uint32_t index, values v, uint64_t count, void *staging, uint64_t staging_bytes, hr_error *error) {
  uint64_t each = hri_file_dtype_bits(sink->dtype) / 8;
  staging_lists l = staging_split(sink->dtype, staging, staging_bytes);
  if (same_type(v, sink->dtype)) return hri_weights_writer_write(sink->weights, index, 0, v.base, count * each, error);
  for (uint64_t done = 0; done < count; done += l.room) {
    uint64_t n = count - done < l.room ? count - done : l.room;
    const float *list = l.list;
    if (v.real == HRI_REAL_BF16) hri_f32_from_bf16(l.list, from(v, done).base, n);
    else list = from(v, done).base;
    if (sink->dtype != HRI_FILE_F32) (void)hri_file_from_f32(sink->dtype, l.raw, list, n);
    HRI_TRY(hri_weights_writer_write(sink->weights, index, done * each, sink->dtype != HRI_FILE_F32 ? l.raw : list, n * each, error));
  }
  return HR_OK;
}

/* Gathers file rows (our columns) in one half of the staging, converts in the other. */
static hr_status write_transposed(hri_sink *sink, uint32_t index, const hri_param_part *part, uint64_t columns, values v, void *staging, uint64_t staging_bytes, hr_error *error) {
  uint64_t each = hri_file_dtype_bits(sink->dtype) / 8, row = 0, column = 0;
  staging_lists l = staging_split(sink->dtype, staging, staging_bytes);
  for (uint64_t at = 0; at < columns * part->rows;) {
    uint64_t n = columns * part->rows - at < l.room ? columns * part->rows - at : l.room;
    for (uint64_t k = 0; k < n; k++) {
      l.list[k] = value_at(v, (part->row + row) * columns + column);
      if (++row == part->rows) {
        row = 0;
        column++;
      }
    }
    if (sink->dtype != HRI_FILE_F32) (void)hri_file_from_f32(sink->dtype, l.raw, l.list, n);
    HRI_TRY(hri_weights_writer_write(sink->weights, index, at * each, l.raw, n * each, error));
    at += n;
  }
  return HR_OK;
}

hr_status hri_sink_write(void *context, uint32_t p, hri_part_kind kind, const void *tensor, void *staging, uint64_t staging_bytes, hr_error *error) {
  hri_sink *sink = context;
  values v = values_of(sink->job, p, kind, (void *)(uintptr_t)tensor); /* only read */
  hri_param_spec spec;
  uint64_t columns;
  hri_param_get(sink->model, sink->job->params.items[p].spec, &spec);
  columns = spec.rank == 2 ? spec.dims[1] : 1;
  if (kind != HRI_PART_WEIGHT) {
    uint32_t index = sink->first_state[p] + (kind == HRI_PART_STATE1);
    return sink->states ? hri_safetensors_writer_write(sink->states, index, 0, tensor, spec.dims[0] * columns * hri_real_bytes(v.real), error) : HR_OK;
  }
  for (uint32_t k = 0; k < spec.part_count; k++) {
    const hri_param_part *part = &spec.parts[k];
    uint32_t index = sink->first_tensor[p] + k;
    if (part->transposed) HRI_TRY(write_transposed(sink, index, part, columns, v, staging, staging_bytes, error));
    else HRI_TRY(write_run(sink, index, from(v, part->row * columns), part->rows * columns, staging, staging_bytes, error));
  }
  return HR_OK;
}

hr_status hri_sink_finish(hri_sink *sink, hr_error *error) {
  hri_weights_writer *weights = sink->weights;
  hri_safetensors_writer *states = sink->states;
  hr_status status;
  sink->weights = NULL;
  sink->states = NULL;
  status = hri_weights_writer_finish(weights, error);
  if (status != HR_OK) {
    hri_safetensors_writer_abort(states);
    return status;
  }
  return states ? hri_safetensors_writer_finish(states, error) : HR_OK;
}

void hri_sink_abort(hri_sink *sink) {
  hri_weights_writer_abort(sink->weights);
  hri_safetensors_writer_abort(sink->states);
  hri_free(sink->tensors);
  hri_free(sink->names);
  hri_free(sink->first_tensor);
  hri_free(sink->state_tensors);
  hri_free(sink->state_names);
  hri_free(sink->first_state);
  memset(sink, 0, sizeof *sink);
}
