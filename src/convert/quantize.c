/* Quantizing a directory's weights as bitsandbytes stores them, one tensor at a time, by the kernels with which a run
 * does it while loading: a matrix is held in the file's type (F16: in fp32), and what becomes of it. Its pieces are read,
 * and its blocks quantized, by a team on all cores. Everything else is copied as it is. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <headroom/device.h>

#include "base/file.h"
#include "base/number.h"
#include "base/publish.h"
#include "backend/backend.h"
#include "convert/bnb.h"
#include "convert/weights.h"
#include "ops/cpu.h"

enum {
  PIECE_BYTES = 8 << 20, /* of what is copied */
  READ_BYTES = 1 << 20,  /* of a matrix, by one thread at a time */
  STRIP = 16             /* rows of a transposed file side by side: a cache line of a row here */
};
#define SHARD_BYTES 5000000000u /* decimal, as huggingface_hub */

/* One tensor of the source. */
typedef struct item {
  char name[128];
  uint32_t index;           /* in the source */
  uint32_t first;           /* of what it becomes, in the list for the writer */
  uint64_t rows, columns;   /* [out, in] */
  bool transposed;          /* in the source */
  hri_bnb_entries *entries; /* NULL: copied */
} item;

typedef struct quantizer {
  const hri_convert_source *source;
  uint32_t kind, count;
  item *items;
  HRI_ARRAY(hri_safetensor) tensors;
  uint64_t most;        /* elements of the largest matrix that is quantized */
  uint64_t slice;       /* bytes of `raw` for a thread */
  hri_backend *backend; /* whose kernels and team these are */
  void *values;
  float *nested, *scratch;
  unsigned char *raw;
  uint8_t *codes;
  void *absmax;
} quantizer;

static hr_status list_items(quantizer *q, hr_error *error) {
  const hr_model *model = q->source->model;
  uint32_t params = hri_param_count(model);
  q->items = hri_alloc_zero((size_t)params * HRI_PARAM_PARTS, sizeof *q->items);
  if (!q->items) return hri_fail_memory(error, params * sizeof *q->items, "the list of tensors");
  for (uint32_t p = 0; p < params; p++) {
    hri_param_spec spec;
    hri_param_get(model, p, &spec);
    for (uint32_t k = 0; k < spec.part_count; k++) {
      item *to = &q->items[q->count++];
      (void)snprintf(to->name, sizeof to->name, "%s", spec.parts[k].name);
      to->index = hri_convert_find(q->source, to->name);
      if (to->index == HRI_SAFETENSORS_NONE)
        return hri_fail(error, HR_ERROR_INPUT, "the tensor %s is missing", to->name);
      to->rows = spec.parts[k].rows;
      to->columns = spec.rank == 2 ? spec.dims[1] : 1;
      to->transposed = spec.parts[k].transposed;
      if (!hri_param_quantizes(model, &spec)) continue;
      to->entries = hri_alloc_zero(1, sizeof *to->entries);
      if (!to->entries) return hri_fail_memory(error, sizeof *to->entries, to->name);
      if (to->rows * to->columns > q->most) q->most = to->rows * to->columns;
    }
  }
  return HR_OK;
}

/* What the kernel reads: bf16 and fp32 as they are in the file, F16 widened. */
static hri_real real_of(const quantizer *q, const item *t) {
  return hri_weights_get(q->source->weights, t->index)->dtype == HRI_FILE_BF16 ? HRI_REAL_BF16 : HRI_REAL_F32;
}

/* Sizes that hold for each matrix: a scale for each row or block at most, and the blocks of those and their mean. A
 * thread reads pieces of a matrix that is as it is in the file straight to its place, and others through its slice: at
 * least a strip of rows, with values of 4 bytes. */
static hr_status make_room(quantizer *q, hr_error *error) {
  uint64_t longest = 1, scales = 1, bytes = 1, threads = (uint64_t)hri_team_threads(q->backend->elements.team), room;
  for (uint32_t i = 0; i < q->count; i++) {
    const item *t = &q->items[i];
    uint64_t elements = t->rows * t->columns, blocks = elements / HRI_QUANT_BLOCK + 1;
    if (!t->entries) continue;
    if (t->transposed && t->rows > longest) longest = t->rows;
    if (t->rows > scales) scales = t->rows;
    if (blocks > scales) scales = blocks;
    if (elements * hri_real_bytes(real_of(q, t)) > bytes) bytes = elements * hri_real_bytes(real_of(q, t));
  }
  q->slice =
      hri_round_up(longest * STRIP * sizeof(float) > READ_BYTES ? longest * STRIP * sizeof(float) : READ_BYTES, 64);
  room = q->slice * threads > PIECE_BYTES ? q->slice * threads : PIECE_BYTES;
  q->values = hri_alloc(bytes);
  q->raw = hri_alloc(room);
  q->codes = hri_alloc(q->most + 1);
  q->absmax = hri_alloc(scales * sizeof(float));
  q->scratch = hri_alloc(scales * sizeof(float));
  q->nested = hri_alloc((scales / HRI_QUANT_NESTED_BLOCK + 2) * sizeof(float));
  if (q->values && q->raw && q->codes && q->absmax && q->scratch && q->nested) return HR_OK;
  return hri_fail_memory(error, bytes + q->most + room, "the largest matrix");
}

static void end(quantizer *q) {
  for (uint32_t i = 0; i < q->count; i++) hri_free(q->items[i].entries);
  hri_free(q->items);
  hri_array_free(&q->tensors);
  hri_free(q->values);
  hri_free(q->raw);
  hri_free(q->codes);
  hri_free(q->absmax);
  hri_free(q->scratch);
  hri_free(q->nested);
  hri_backend_close(q->backend);
}

/* int8 goes through F16, as in bitsandbytes, and has no code beyond. */
static hr_status refuse(const quantizer *q, const item *t, uint64_t at, hr_error *error) {
  hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s has %g at row %llu, column %llu, which has no code in %s",
           hri_weights_path(q->source->weights, t->index), t->name,
           hri_unsigned_nan((double)hri_real_get(q->values, (int64_t)at, real_of(q, t))),
           (unsigned long long)(at / t->columns), (unsigned long long)(at % t->columns),
           hri_quantization_name(q->kind));
  return hri_hint(error, HR_ERROR_INPUT, "the model is damaged, or its training diverged; use an earlier one");
}

/* ---- reading a matrix as [out, in] ---- */

typedef struct reading {
  quantizer *q;
  const item *t;
  uint64_t each; /* elements of a piece; transposed: file rows */
  atomic_int failed;
  hr_status status; /* of the first thread that failed, with its error */
  hr_error error;
} reading;

static hr_status read_run(reading *r, uint64_t first, unsigned char *slice, hr_error *error) {
  const item *t = r->t;
  hri_file_dtype dtype = hri_weights_get(r->q->source->weights, t->index)->dtype;
  uint64_t bytes = hri_file_dtype_bits(dtype) / 8, n = t->rows * t->columns - first;
  void *place = hri_real_at(r->q->values, (int64_t)first, real_of(r->q, t));
  if (n > r->each) n = r->each;
  HRI_TRY(hri_weights_read(r->q->source->weights, t->index, first * bytes, n * bytes,
                           dtype == HRI_FILE_F16 ? (void *)slice : place, error));
  if (dtype == HRI_FILE_F16) (void)hri_file_to_f32(dtype, place, slice, n);
  return HR_OK;
}

/* File rows [first, first + STRIP) become columns here. */
static hr_status read_strip(reading *r, uint64_t first, unsigned char *slice, hr_error *error) {
  const item *t = r->t;
  hri_file_dtype dtype = hri_weights_get(r->q->source->weights, t->index)->dtype;
  uint64_t bytes = hri_file_dtype_bits(dtype) / 8, n = t->columns - first < STRIP ? t->columns - first : STRIP;
  HRI_TRY(
      hri_weights_read(r->q->source->weights, t->index, first * t->rows * bytes, n * t->rows * bytes, slice, error));
  for (uint64_t row = 0; row < t->rows; row++)
    for (uint64_t k = 0; k < n; k++) {
      uint64_t from = k * t->rows + row, to = row * t->columns + first + k;
      if (dtype == HRI_FILE_F16) (void)hri_file_to_f32(dtype, (float *)r->q->values + to, slice + 2 * from, 1);
      else if (dtype == HRI_FILE_BF16) ((hri_bf16 *)r->q->values)[to] = ((const hri_bf16 *)(const void *)slice)[from];
      else ((float *)r->q->values)[to] = ((const float *)(const void *)slice)[from];
    }
  return HR_OK;
}

static void read_pieces(void *context, int64_t begin, int64_t end, int thread) {
  reading *r = context;
  unsigned char *slice = r->q->raw + (uint64_t)thread * r->q->slice;
  for (int64_t k = begin; k < end && !atomic_load(&r->failed); k++) {
    hr_error own;
    hr_status status = r->t->transposed ? read_strip(r, (uint64_t)k * STRIP, slice, &own)
                                        : read_run(r, (uint64_t)k * r->each, slice, &own);
    if (status == HR_OK || atomic_exchange(&r->failed, 1)) continue;
    r->status = status;
    r->error = own;
  }
}

static hr_status read_matrix(quantizer *q, const item *t, hr_error *error) {
  reading r = {.q = q, .t = t, .each = READ_BYTES / sizeof(float), .status = HR_OK};
  uint64_t total = t->transposed ? t->columns : t->rows * t->columns;
  if (t->transposed) r.each = STRIP;
  hri_team_each(q->backend->elements.team, (int64_t)((total + r.each - 1) / r.each), 1, read_pieces, &r);
  if (r.status != HR_OK && error) *error = r.error;
  return r.status;
}

static hr_status quantize(quantizer *q, const item *t, hri_quant_layout *layout, hr_error *error) {
  bool nested = hri_quant_is_double(q->kind);
  hri_quant_args args = {.kind = q->kind,
                         .layout = layout,
                         .real = real_of(q, t),
                         .w = q->values,
                         .codes = q->codes,
                         .absmax = q->absmax,
                         .nested = nested ? q->nested : NULL,
                         .scratch = nested ? q->scratch : NULL,
                         .team = q->backend->elements.team};
  int64_t bad;
  if (!hri_quant_layout_make(q->kind, &t->rows, NULL, 1, t->columns, layout))
    return hri_fail(error, HR_ERROR_INPUT, "tensor %s is too large", t->name);
  HRI_TRY(read_matrix(q, t, error));
  bad = q->backend->elements.quantize(&args);
  return bad < 0 ? HR_OK : refuse(q, t, (uint64_t)bad, error);
}

/* What a matrix becomes. The offset of double quantization decides how long one of the tensors is: it is made here, and
 * again when the matrix is written. */
static hr_status describe(quantizer *q, item *t, hr_error *error) {
  hri_bnb_state state = {.kind = q->kind,
                         .dtype = hri_weights_get(q->source->weights, t->index)->dtype,
                         .rows = t->rows,
                         .columns = t->columns};
  hri_quant_layout layout;
  if (hri_quant_is_double(q->kind)) {
    HRI_TRY(hri_convert_go_on(q->source, error));
    HRI_TRY(quantize(q, t, &layout, error));
    state.offset = q->nested[layout.nested_count - 1];
  }
  return hri_bnb_entries_init(t->entries, t->name, &state, error);
}

static hr_status list_tensors(quantizer *q, uint64_t *data_bytes, hr_error *error) {
  for (uint32_t i = 0; i < q->count; i++) {
    item *t = &q->items[i];
    hri_safetensor plain = *hri_weights_get(q->source->weights, t->index);
    uint32_t count = 1;
    plain.name = t->name;
    if (t->entries) HRI_TRY(describe(q, t, error));
    if (t->entries) count = t->entries->count;
    t->first = (uint32_t)q->tensors.count;
    for (uint32_t k = 0; k < count; k++) {
      hri_safetensor tensor = t->entries ? t->entries->tensors[k] : plain;
      uint64_t elements = 0, bytes = 0;
      if (!hri_array_push(&q->tensors, tensor)) return hri_fail_memory(error, sizeof tensor, "the list of tensors");
      if (hri_file_elements(tensor.rank, tensor.shape, &elements) && hri_file_bytes(tensor.dtype, elements, &bytes))
        *data_bytes += bytes;
    }
  }
  return HR_OK;
}

/* What is copied, too: an embedding with a NaN makes a model that answers nothing, whatever became of its layers. The piece
 * in `raw` begins with element `first` of the file's tensor. */
static hr_status check_piece(const quantizer *q, const item *t, uint64_t first, uint64_t count, hri_real real,
                             hr_error *error) {
  const hri_safetensor *from = hri_weights_get(q->source->weights, t->index);
  const uint64_t columns = from->shape[from->rank - 1];
  const int64_t bad = q->backend->elements.first_nonfinite(q->raw, (int64_t)count, real, q->backend->elements.team);
  if (bad < 0) return HR_OK;
  first += (uint64_t)bad;
  hri_fail(error, HR_ERROR_INPUT, "%s: tensor %s has %g at row %llu, column %llu, which is not finite",
           hri_weights_path(q->source->weights, t->index), t->name,
           hri_unsigned_nan((double)hri_real_get(q->raw, bad, real)), (unsigned long long)(first / columns),
           (unsigned long long)(first % columns));
  return hri_hint(error, HR_ERROR_INPUT, "the model is damaged, or its training diverged; use an earlier one");
}

static hr_status copy(quantizer *q, const item *t, hri_weights_writer *writer, hr_error *error) {
  const hri_safetensor *from = hri_weights_get(q->source->weights, t->index);
  const hri_real real = from->dtype == HRI_FILE_BF16  ? HRI_REAL_BF16
                        : from->dtype == HRI_FILE_F16 ? HRI_REAL_F16
                                                      : HRI_REAL_F32;
  const uint64_t bytes = from->end - from->begin, each = hri_real_bytes(real);
  for (uint64_t done = 0; done < bytes; done += PIECE_BYTES) {
    uint64_t n = bytes - done < PIECE_BYTES ? bytes - done : PIECE_BYTES;
    HRI_TRY(hri_convert_go_on(q->source, error));
    HRI_TRY(hri_weights_read(q->source->weights, t->index, done, n, q->raw, error));
    HRI_TRY(check_piece(q, t, done / each, n / each, real, error));
    HRI_TRY(hri_weights_writer_write(writer, t->first, done, q->raw, n, error));
  }
  return HR_OK;
}

static hr_status write_all(quantizer *q, hri_weights_writer *writer, hr_error *error) {
  for (uint32_t i = 0; i < q->count; i++) {
    const item *t = &q->items[i];
    hri_quant_layout layout;
    if (!t->entries) {
      HRI_TRY(copy(q, t, writer, error));
      continue;
    }
    HRI_TRY(hri_convert_go_on(q->source, error));
    HRI_TRY(quantize(q, t, &layout, error));
    HRI_TRY(hri_bnb_write(writer, t->first, t->entries, q->codes, q->absmax, q->nested, error));
  }
  return HR_OK;
}

static hr_status open_backend(quantizer *q, hr_error *error) {
  hr_device device;
  HRI_TRY(hr_device_find("cpu", &device, error));
  HRI_TRY(hri_backend_open(&device, hr_device_cpu_threads(), &q->backend, error));
  (void)hri_team_start(q->backend->elements.team,
                       NULL); /* refused: the calling thread does it alone, to the same bytes */
  return HR_OK;
}

hr_status hri_convert_to_quantized(const hri_convert_source *source, const char *directory, uint32_t kind,
                                   uint32_t *tensor_count, uint64_t *data_bytes, hr_error *error) {
  quantizer q = {.source = source, .kind = kind};
  hri_weights_writer *writer = NULL;
  hr_status status = HR_OK;
  *data_bytes = 0;
  HRI_TRY_OUT(list_items(&q, error));
  HRI_TRY_OUT(open_backend(&q, error));
  HRI_TRY_OUT(make_room(&q, error));
  HRI_TRY_OUT(list_tensors(&q, data_bytes, error));
  HRI_TRY_OUT(hri_publish_room(directory, *data_bytes, error));
  HRI_TRY_OUT(
      hri_weights_writer_open(directory, q.tensors.items, (uint32_t)q.tensors.count, SHARD_BYTES, &writer, error));
  HRI_TRY_OUT(write_all(&q, writer, error));
  *tensor_count = (uint32_t)q.tensors.count;
  status = hri_weights_writer_finish(writer, NULL, error);
  writer = NULL;
  if (status == HR_OK) status = hri_dir_sync(directory, error);
out:
  hri_weights_writer_abort(writer);
  end(&q);
  return status;
}
