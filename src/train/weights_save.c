/* Saving: what the SINK nodes of a job write, and the files that they fill. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "train/weights.h"
#include "train/weights_move.h"

#define STATES_FILE "optimizer.safetensors"

/* ---- what is carried from the source ---- */

static hr_status take_metadata(hri_carry *carry, const hri_safetensors *file, hr_error *error) {
  uint32_t count = hri_safetensors_metadata_count(file);
  carry->metadata = hri_alloc_zero((size_t)count + 1, sizeof *carry->metadata);
  if (!carry->metadata) return hri_fail_memory(error, count * sizeof *carry->metadata, "metadata");
  for (uint32_t k = 0; k < count; k++) {
    hri_safetensors_pair pair = hri_safetensors_metadata_get(file, k), *to = &carry->metadata[carry->metadata_count];
    if (strcmp(pair.key, HRI_SOURCE_DTYPE_KEY) == 0 ||
        (strcmp(pair.key, "format") == 0 && strcmp(pair.value, "pt") != 0))
      continue;
    carry->metadata_count++;
    to->key = hri_strdup(pair.key);
    to->value = hri_strdup(pair.value);
    if (!to->key || !to->value) return hri_fail_memory(error, strlen(pair.value), "metadata");
  }
  return HR_OK;
}

/* Files with none of the model's tensors (a tied head alone, say) have no shard in the result. */
static hr_status take_layout(hri_carry *carry, const hri_source *s, hr_error *error) {
  uint32_t params = hri_param_count(s->model), files = hri_weights_file_count(s->weights), t = 0;
  uint32_t *shard_of_file = hri_alloc((size_t)(files + 1) * sizeof *shard_of_file);
  carry->dtypes = hri_alloc((size_t)(params + 1) * HRI_PARAM_PARTS * sizeof *carry->dtypes);
  carry->shard_of = hri_alloc((size_t)(params + 1) * HRI_PARAM_PARTS * sizeof *carry->shard_of);
  if (!shard_of_file || !carry->dtypes || !carry->shard_of) {
    hri_free(shard_of_file);
    return hri_fail_memory(error, (uint64_t)params * HRI_PARAM_PARTS * 8, "the list of tensors");
  }
  memset(shard_of_file, 0, files * sizeof *shard_of_file);
  for (int pass = 0; pass < 2; pass++, t = 0) {
    for (uint32_t p = 0; p < params; p++) {
      hri_param_spec spec;
      hri_param_get(s->model, p, &spec);
      for (uint32_t k = 0; k < spec.part_count; k++, t++) {
        uint32_t index = hri_source_find(s, &spec.parts[k]), file = hri_weights_file_of(s->weights, index);
        carry->dtypes[t] = hri_weights_get(s->weights, index)->dtype;
        if (pass == 0) shard_of_file[file] = 1;
        else carry->shard_of[t] = shard_of_file[file];
      }
    }
    for (uint32_t f = 0; pass == 0 && f < files; f++)
      if (shard_of_file[f]) shard_of_file[f] = carry->shard_count++;
  }
  hri_free(shard_of_file);
  return HR_OK;
}

hr_status hri_carry_take(hri_carry *carry, const hri_source *s, hr_error *error) {
  const hri_safetensors *file;
  const char *began;
  hri_file_dtype dtype;
  hr_status status;
  carry->dtype = s->model->lora.rank > 0 ? HRI_FILE_F32 : s->dtype; /* adapters are, as PEFT saves them */
  if (!s->weights || s->model->lora.rank > 0) return HR_OK;
  file = hri_weights_file(s->weights, 0);
  began = hri_safetensors_metadata_find(file, HRI_SOURCE_DTYPE_KEY);
  status = take_metadata(carry, file, error);
  if (began && hri_file_dtype_parse(began, &dtype) &&
      (dtype == HRI_FILE_F32 || dtype == HRI_FILE_BF16 || dtype == HRI_FILE_F16))
    carry->dtype = dtype;
  else if (status == HR_OK) status = take_layout(carry, s, error);
  if (status != HR_OK) hri_carry_deinit(carry);
  return status;
}

void hri_carry_deinit(hri_carry *carry) {
  for (uint32_t k = 0; k < carry->metadata_count; k++) {
    hri_free((char *)(uintptr_t)carry->metadata[k].key);
    hri_free((char *)(uintptr_t)carry->metadata[k].value);
  }
  hri_free(carry->metadata);
  hri_free(carry->dtypes);
  hri_free(carry->shard_of);
  memset(carry, 0, sizeof *carry);
}

/* ---- the files ---- */

static void list_weight(hri_sink *sink, const hri_param_spec *spec, uint32_t k, uint32_t at) {
  const hri_carry *carry = sink->options.carry;
  hri_safetensor *tensor = &sink->tensors[at];
  if (!hri_part_tuned(sink->model, spec, &spec->parts[k], sink->names[at]))
    memcpy(sink->names[at], spec->parts[k].name, sizeof sink->names[at]);
  tensor->name = sink->names[at];
  tensor->dtype = !sink->options.as_source ? sink->options.dtype : carry->dtypes ? carry->dtypes[at] : carry->dtype;
  tensor->rank = hri_part_shape(spec, &spec->parts[k], tensor->shape);
}

static bool list_state(hri_sink *sink, uint32_t range, const hri_param_spec *spec, uint32_t tensor, uint32_t k) {
  uint32_t at = sink->state_count;
  hri_state_file file;
  if (!hri_state_file_of(sink->job, range, spec, tensor, k, &file)) return false;
  memcpy(sink->state_names[at], file.name, sizeof sink->state_names[at]);
  sink->state_tensors[at] = (hri_safetensor){.name = sink->state_names[at],
                                             .dtype = hri_state_dtype(sink->job, range, tensor),
                                             .rank = file.rank,
                                             .shape = {file.shape[0], file.shape[1]}};
  sink->state_count++;
  return true;
}

static void list_states(hri_sink *sink, uint32_t range, const hri_param_spec *spec) {
  const hri_param_range *r = &sink->job->ranges.items[range];
  sink->first_state[range] = sink->state_count;
  for (uint32_t t = 0; sink->options.states && t < HRI_STATE_TENSORS && r->state[t] != HRI_NONE; t++)
    for (uint32_t k = 0; list_state(sink, range, spec, t, k);) k++;
}

static hr_status list_tensors(hri_sink *sink, hr_error *error) {
  const hri_job *job = sink->job;
  size_t parts = job->parts.count, states = parts * HRI_STATE_TENSORS;
  sink->tensors = hri_alloc_zero(parts + 1, sizeof *sink->tensors);
  sink->tensor_of = hri_alloc_zero(parts + 1, sizeof *sink->tensor_of);
  sink->names = hri_alloc_zero(parts + 1, sizeof *sink->names);
  sink->state_tensors = hri_alloc_zero(states + 1, sizeof *sink->state_tensors);
  sink->state_names = hri_alloc_zero(states + 1, sizeof *sink->state_names);
  sink->first_state = hri_alloc_zero(job->ranges.count + 1, sizeof *sink->first_state);
  if (!sink->tensors || !sink->tensor_of || !sink->names || !sink->state_tensors || !sink->state_names ||
      !sink->first_state)
    return hri_fail_memory(error, (uint64_t)parts * 800, "the list of tensors to save");
  for (uint32_t r = 0; r < job->ranges.count; r++) {
    const hri_param_range *range = &job->ranges.items[r];
    hri_param_spec spec;
    hri_param_get(sink->model, job->params.items[range->param].spec, &spec);
    for (uint32_t k = 0; k < range->part_count; k++) {
      uint32_t part = range->part_begin - job->params.items[range->param].part_begin + k;
      sink->tensor_of[range->part_begin + k] = HRI_NONE;
      if (sink->model->lora.rank > 0 && !hri_part_tuned(sink->model, &spec, &spec.parts[part], NULL)) continue;
      sink->tensor_of[range->part_begin + k] = sink->tensor_count;
      list_weight(sink, &spec, part, sink->tensor_count++);
    }
    list_states(sink, r, &spec);
  }
  return HR_OK;
}

static hr_status open_weights(hri_sink *sink, const char *directory, hr_error *error) {
  const hri_carry *carry = sink->options.carry;
  hri_weights_layout layout = {.max_shard_bytes =
                                   sink->options.max_shard_bytes ? sink->options.max_shard_bytes : HRI_SHARD_BYTES};
  uint32_t count = carry->metadata_count;
  hri_safetensors_pair *pairs = hri_alloc_zero((size_t)count + 2, sizeof *pairs);
  hr_status status;
  if (!pairs) return hri_fail_memory(error, count * sizeof *pairs, "metadata");
  if (count) memcpy(pairs, carry->metadata, count * sizeof *pairs);
  if (sink->options.states)
    pairs[count++] = (hri_safetensors_pair){HRI_SOURCE_DTYPE_KEY, hri_file_dtype_name(carry->dtype)};
  if (sink->model->lora.rank > 0 && sink->options.quantization)
    pairs[count++] = (hri_safetensors_pair){HRI_QUANTIZATION_KEY, sink->options.quantization};
  layout.metadata = pairs;
  if (sink->model->lora.rank > 0) layout.name = HRI_ADAPTER_FILE;
  layout.metadata_count = count;
  if (sink->options.as_source && carry->shard_of) {
    layout.shard_of = carry->shard_of;
    layout.shard_count = carry->shard_count;
  }
  status = hri_weights_writer_open_as(directory, sink->tensors, sink->tensor_count, &layout, &sink->weights, error);
  hri_free(pairs);
  return status;
}

static hr_status open_states(hri_sink *sink, const char *directory, hr_error *error) {
  uint32_t count = sink->state_count;
  char *path = hri_path_join(directory, STATES_FILE);
  hr_status status;
  if (!path) return hri_fail_memory(error, strlen(directory), "a path");
  status = count ? hri_safetensors_writer_open(path, sink->state_tensors, count, NULL, 0, &sink->states, error) : HR_OK;
  hri_free(path);
  return status;
}

hr_status hri_sink_open(hri_sink *sink, const hr_model *model, const hri_job *job, const hri_elements *elements,
                        const char *directory, const hri_sink_options *options, hr_error *error) {
  hr_status status = HR_OK;
  memset(sink, 0, sizeof *sink);
  sink->model = model;
  sink->job = job;
  sink->elements = elements;
  sink->options = *options;
  HRI_TRY_OUT(list_tensors(sink, error));
  HRI_TRY_OUT(open_weights(sink, directory, error));
  HRI_TRY_OUT(open_states(sink, directory, error));
out:
  if (status != HR_OK) hri_sink_abort(sink);
  return status;
}

/* ---- values ---- */

static hr_status write_bytes(const hri_move *move, uint64_t offset, uint64_t count, void *memory, hr_error *error) {
  return hri_weights_writer_write(move->file, move->index, offset, memory, count, error);
}

static hr_status write_state_bytes(const hri_move *move, uint64_t offset, uint64_t count, void *memory,
                                   hr_error *error) {
  return hri_safetensors_writer_write(move->file, move->index, offset, memory, count, error);
}

/* The parts of a range's weight, or of one tensor of its state, as moves to their files. */
static uint32_t weight_moves(hri_sink *sink, const hri_param_range *range, const hri_param_spec *spec, hri_real real,
                             const hri_window *tensor, hri_move *moves) {
  uint64_t columns = spec->rank == 2 ? spec->dims[1] : 1;
  for (uint32_t k = 0; k < range->part_count; k++) {
    const hri_param_part *part = &spec->parts[range->part_begin - sink->job->params.items[range->param].part_begin + k];
    uint32_t index = sink->tensor_of[range->part_begin + k];
    moves[k] = (hri_move){.bytes = write_bytes,
                          .file = sink->weights,
                          .index = index,
                          .out = true,
                          .type = hri_move_type(sink->tensors[index].dtype),
                          .rows = part->rows,
                          .columns = columns,
                          .transposed = part->transposed,
                          .window = tensor,
                          .first = (part->row - range->row) * columns,
                          .real = real,
                          .finite = true,
                          .path = sink->model->lora.rank > 0 ? HRI_ADAPTER_FILE : HRI_WEIGHTS_FILE,
                          .name = sink->names[index]};
  }
  return range->part_count;
}

/* What is frozen is saved with the bits that it came with, although the programs read it in fewer: values go from file to
 * file, which both lay a part out alike (but a GGUF file, which transposes nothing). */
typedef struct originals {
  hri_move from[HRI_PARAM_PARTS];
  hri_window windows[HRI_PARAM_PARTS];
} originals;

/* Whether the file still holds what the arena was filled with: it may have been written over in place. `move` says where
 * that is; a device's tensor that the file transposes is not compared. INPUT when it does not. */
static hr_status check_held(const hri_move *from, const hri_window *file, const hri_move *move, hr_error *error) {
  enum { PIECE = 2048 };
  uint64_t total = move->rows * move->columns, each = hri_real_bytes(move->real);
  float values[PIECE];
  uint16_t list[PIECE];
  for (uint64_t at = 0; at < total && (move->window->memory || !from->transposed); at += PIECE) {
    uint64_t count = total - at < PIECE ? total - at : PIECE;
    const uint16_t *held = move->window->memory ? (const uint16_t *)move->window->memory + move->first : NULL;
    HRI_TRY(file->get(file->context, at * sizeof *values, values, count * sizeof *values, error));
    if (!held) HRI_TRY(move->window->get(move->window->context, (move->first + at) * each, list, count * each, error));
    for (uint64_t i = 0; i < count; i++) {
      uint64_t in = at + i, place = from->transposed ? in % move->rows * move->columns + in / move->rows : in;
      if ((held ? held[place] : list[i]) != hri_narrow_round(values[i], move->real)) {
        hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s is not what was loaded from there any more", from->path,
                 from->name);
        return hri_hint(error, HR_ERROR_INPUT,
                        "leave the model's files alone during a run; headroom inspect RUN --verify says what is whole");
      }
    }
  }
  return HR_OK;
}

static hr_status take_originals(hri_sink *sink, uint32_t range, hri_move *moves, uint32_t count, originals *o,
                                hr_error *error) {
  for (uint32_t k = 0; sink->options.originals && k < count; k++) {
    bool rounded;
    hr_error changed = {0};
    HRI_TRY(hri_source_original(sink->options.originals, range, k, &o->from[k], &rounded, error));
    if (!rounded) continue;
    o->windows[k] = hri_move_originals(&o->from[k]);
    if (check_held(&o->from[k], &o->windows[k], &moves[k], &changed) != HR_OK) {
      if (!sink->changed.message[0]) sink->changed = changed;
      continue;
    }
    moves[k].window = &o->windows[k];
    moves[k].first = 0;
    moves[k].real = HRI_REAL_F32;
    moves[k].transposed = moves[k].transposed && !o->from[k].transposed;
  }
  return HR_OK;
}

static uint32_t state_moves(hri_sink *sink, uint32_t range, const hri_param_spec *spec, uint32_t which,
                            const hri_window *tensor, hri_move *moves) {
  uint32_t count = 0, index = sink->first_state[range];
  hri_file_dtype dtype = hri_state_dtype(sink->job, range, which);
  hri_state_file file;
  for (uint32_t t = 0; t < which; t++)
    for (uint32_t k = 0; hri_state_file_of(sink->job, range, spec, t, k, &file); k++) index++;
  for (; hri_state_file_of(sink->job, range, spec, which, count, &file); count++, index++)
    moves[count] = (hri_move){.bytes = write_state_bytes,
                              .file = sink->states,
                              .index = index,
                              .out = true,
                              .type = hri_move_type(dtype),
                              .rows = file.shape[0],
                              .columns = file.rank == 2 ? file.shape[1] : 1,
                              .window = tensor,
                              .first = file.at,
                              .real = dtype == HRI_FILE_BF16 ? HRI_REAL_BF16 : HRI_REAL_F32,
                              .codes = dtype == HRI_FILE_U8,
                              .finite = dtype != HRI_FILE_U8,
                              .path = STATES_FILE,
                              .name = sink->state_names[index]};
  return count;
}

hr_status hri_sink_write(void *context, uint32_t index, uint32_t what, const hri_window *tensor, void *staging,
                         uint64_t staging_bytes, hr_error *error) {
  hri_sink *sink = context;
  const hri_param_range *range = &sink->job->ranges.items[index];
  hri_move moves[HRI_PARAM_PARTS];
  originals o;
  hri_param_spec spec;
  uint32_t count;
  if (what != HRI_MOVED_WEIGHT && !sink->states) return HR_OK;
  hri_param_get(sink->model, sink->job->params.items[range->param].spec, &spec);
  count = what == HRI_MOVED_WEIGHT
              ? weight_moves(sink, range, &spec, hri_real_of(sink->job, index, what), tensor, moves)
              : state_moves(sink, index, &spec, what - HRI_MOVED_STATE, tensor, moves);
  if (what == HRI_MOVED_WEIGHT) HRI_TRY(take_originals(sink, index, moves, count, &o, error));
  return hri_moves_run(sink->elements, moves, count, staging, staging_bytes, error);
}

hr_status hri_sink_finish(hri_sink *sink, hri_file_list *files, hr_error *error) {
  hri_weights_writer *weights = sink->weights;
  hri_safetensors_writer *states = sink->states;
  hr_status status;
  sink->weights = NULL;
  sink->states = NULL;
  status = hri_weights_writer_finish(weights, files, error);
  if (status != HR_OK) {
    hri_safetensors_writer_abort(states);
    return status;
  }
  return states ? hri_safetensors_writer_finish(states, files, error) : HR_OK;
}

void hri_sink_abort(hri_sink *sink) {
  hri_weights_writer_abort(sink->weights);
  hri_safetensors_writer_abort(sink->states);
  hri_free(sink->tensors);
  hri_free(sink->tensor_of);
  hri_free(sink->names);
  hri_free(sink->state_tensors);
  hri_free(sink->state_names);
  hri_free(sink->first_state);
  memset(sink, 0, sizeof *sink);
}
